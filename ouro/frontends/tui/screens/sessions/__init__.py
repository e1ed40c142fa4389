"""The session picker."""
