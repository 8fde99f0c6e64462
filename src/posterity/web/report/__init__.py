"""What a person looks at: the figures behind each page, and the pages made of them.

Every ``…view`` is a function from a store as it was read to plain values: the JSON twin of a page,
and all that the page is made of. The web page and the report draw the same ones.
"""
