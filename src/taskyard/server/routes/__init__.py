"""The routes, by what they are about; each looks who asks, asks the engine or a view, and answers."""
