"""Spelling of quantities in reports and errors."""


def spell_bytes(nbytes: float) -> str:
    """Return a number of bytes in decimal units.

    >>> spell_bytes(93.4e9), spell_bytes(2.5e6)
    ('93.4 GB', '2.5 MB')
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if nbytes >= unit:
            return f"{nbytes / unit:,.1f} {name}"
    return f"{nbytes:,.0f} B"


def spell_count(count: float) -> str:
    """Return a large number in words.

    >>> spell_count(70.6e9), spell_count(125e6)
    ('70.6 billion', '125.0 million')
    """
    if count >= 1e9:
        return f"{count / 1e9:,.1f} billion"
    return f"{count / 1e6:,.1f} million"
