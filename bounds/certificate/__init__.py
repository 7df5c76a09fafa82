"""From logged responses to a Certificate."""
