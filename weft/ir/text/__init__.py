"""Programs as text: `jaxpr` prints jaxprs and `parse` reads them; `hlo` and `stablehlo` print them as other systems write programs."""
