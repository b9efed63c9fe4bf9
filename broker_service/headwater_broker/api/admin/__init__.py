"""What the handlers of admin requests share: forwarding to the controller, changes of configs."""
