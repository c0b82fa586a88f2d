"""Folders of problem files come in; a folder of rows goes out, one for each problem, and what is made from them."""
