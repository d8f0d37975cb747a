//! Numbers that a seed decides, so that a case can be made again.

/// How often something odd happens in a case, compared with a hostile one: most cases must be calm enough to have an
/// answer, and some so wild that everything goes wrong at once.
const MOODS: [usize; 4] = [1, 4, 12, 60];

pub struct Dice {
    state: u64,
    calm: usize,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        let mut dice = Self { state: seed.wrapping_mul(0xd129_0b26_8f5c_1b4d), calm: 1 };
        dice.calm = dice.one_of(&MOODS);
        dice
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than this.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// Once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Once in so many times in a hostile case, and less often in a calm one: for what spoils a whole case.
    pub fn odd(&mut self, times: usize) -> bool {
        let times = times * self.calm;
        self.once_in(times)
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// An index, by how often each should come.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut rest = self.below(weights.iter().sum());
        weights
            .iter()
            .position(|&weight| {
                let is_it = rest < weight;
                rest = rest.saturating_sub(weight);
                is_it
            })
            .unwrap()
    }
}
