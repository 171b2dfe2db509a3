"""Automatic sharding for people: plans that can be read, compared, saved and used."""
