"""Events on their way to those who follow them."""
