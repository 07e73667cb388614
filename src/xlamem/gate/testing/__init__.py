"""What the pytest plugin does with tests that use its marker or its fixture."""
