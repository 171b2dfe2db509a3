"""The text of programs: `jaxpr` prints jaxprs, `parse` parses them, and `program` prints schedules."""
