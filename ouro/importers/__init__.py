"""Importers: sessions of other programs, converted to sessions of ouro."""
