"""Parts of `api.autodiff`: reverse mode with its pullback, and the types and checks of tangents and cotangents."""
