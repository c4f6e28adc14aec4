"""How numbers are shown: the page about one run or several, its figures, the live server."""
