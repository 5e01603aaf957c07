"""`python -m bags`: the command `bags`."""

from bags.cli import main

if __name__ == '__main__':
    main()
