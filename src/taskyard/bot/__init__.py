"""The bot: an agent that talks to the server, and a runner that runs what the agent was given.

They are two processes. Either can be killed at any moment; nothing that a task started outlives both.
"""
