"""The durable life cycle against a model of it: the same steps, and the same states after each."""
