"""Is memory used? Stories of several sessions: captured, delivered, applied, contradicted; tokens
and seconds.
"""
