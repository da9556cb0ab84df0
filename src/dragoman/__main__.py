"""`python -m dragoman` is the `dragoman` program."""

from dragoman.cli.entry import main

if __name__ == "__main__":
    main()
