"""What people see: plots, figures, the command line."""
