"""The worker on the newest ai-dynamo it accepts: ``make compat``."""
