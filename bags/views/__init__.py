"""Views over several datasets: one after the other, or joined by position."""
