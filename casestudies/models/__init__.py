"""Small models under ``torch.compile``: eager, Inductor, and the backend ``tensor_selector``."""
