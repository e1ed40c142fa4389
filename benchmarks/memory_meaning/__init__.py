"""Does memory understand what a statement does? Corrections, pairs, places and what must not stay."""
