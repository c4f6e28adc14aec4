"""The HTML report of one run or several, its figures, and the live server."""
