import unittest

from tally import tally, top, words  # type: ignore[import-not-found]


class Words(unittest.TestCase):
    def test_an_apostrophe_belongs_to_its_word(self) -> None:
        assert words("Don't stop - don't.") == ["don't", "stop", "don't"]

    def test_case_does_not_matter(self) -> None:
        assert words("Straße STRASSE") == ["strasse", "strasse"]

    def test_numbers_are_no_words(self) -> None:
        assert words("42 a1b _") == ["a", "b"]


class Top(unittest.TestCase):
    def test_equal_counts_follow_the_alphabet(self) -> None:
        assert top(tally(["b a", "c b"]), 3) == [("b", 2), ("a", 1), ("c", 1)]

    def test_more_than_there_are_is_all_of_them(self) -> None:
        assert top(tally(["one"]), 9) == [("one", 1)]
