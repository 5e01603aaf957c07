"""`python -m bags`: the command `bags`."""

from bags.cli import main

__all__ = ['main']

if __name__ == '__main__':
    main()
