"""The gateway's shell: logins, clients per principal, guards, and the parts that answer."""
