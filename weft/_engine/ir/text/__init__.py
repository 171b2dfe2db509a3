"""Programs as text: `jaxpr` prints jaxprs and `parse` reads them."""
