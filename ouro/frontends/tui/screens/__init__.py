"""What covers the whole screen for a while."""
