"""Programs as text: `jaxpr` prints jaxprs and `parse` reads them; `hlo` prints them as another system writes programs."""
