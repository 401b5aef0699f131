"""What version 1 is made of: its tables as they were then, and their first rows."""
