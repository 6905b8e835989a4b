"""The cluster's settings: what they are, what they were, and how they are changed."""
