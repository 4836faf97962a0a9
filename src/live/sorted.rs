//! A sorted list that is updated one element at a time. Searches take logarithmic time and return
//! the index of an element.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sorted<T>(Vec<T>);

impl<T> Default for Sorted<T> {
    fn default() -> Sorted<T> {
        Sorted(Vec::new())
    }
}

impl<T: Ord> Sorted<T> {
    pub fn of(mut all: Vec<T>) -> Sorted<T> {
        all.sort_unstable();
        Sorted(all)
    }

    pub fn insert(&mut self, one: T) {
        if let Err(at) = self.0.binary_search(&one) {
            self.0.insert(at, one);
        }
    }

    pub fn remove(&mut self, one: &T) {
        if let Ok(at) = self.0.binary_search(one) {
            self.0.remove(at);
        }
    }

    /// Returns the index of an element; `None` if it is missing.
    pub fn place(&self, one: &T) -> Option<usize> {
        self.0.binary_search(one).ok()
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        self.0.get(at)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}
