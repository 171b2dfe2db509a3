"""Checks of HTML pages that tests write."""

from html.parser import HTMLParser


class Tags(HTMLParser):
    """Checks that tags are closed in order; records the tags, and the addresses that the page loads."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.count = [], [], {}

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.loads += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
