"""Files written whole, names and colors: what every other package may use."""
