"""The dashboard of `dragoman top`: servers, their offers, calls and logs on one screen of Textual."""
