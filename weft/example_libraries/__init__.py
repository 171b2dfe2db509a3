"""Small libraries built from the public functions, for examples: layers of networks (`stax`) and optimizers (`optimizers`)."""
