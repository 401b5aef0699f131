"""The commands, one module for each subject; each is loaded when one of its commands is called."""
