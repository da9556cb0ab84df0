"""The `dragoman` program: it shows what the library does, and decides nothing itself."""
