"""Configuration as typed values: requests and answers, YAML in and out, the control socket.

Modules are imported one by one by who needs them: `lnetctl` must start fast.
"""
