"""Pictures that ship with the case studies, and where they come from (README.md here)."""
