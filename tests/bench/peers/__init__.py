"""What our worker is measured against. Each is a worker process of its own, started like ours."""
