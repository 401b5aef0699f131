"""What runs on machines: an agent that talks with the server, and a runner that runs what the agent was given.

They are two processes. Either may be killed at any moment; nothing that a task started outlives both.
"""
