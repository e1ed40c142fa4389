"""What a person does with memory by hand, and what they are shown of it."""
