"""What training will send, hold and take, before it runs: plans summed over a model's layers."""
