"""What training will send, hold and take, before it runs: plans of strategies summed over a model's layers."""
