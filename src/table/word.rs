//! The two words of the protocol: a bucket's control word and a slot word.
//!
//! ```text
//! slot      63..59 age   58 region   57..56 frequency   55..48 tag   47..3 node   2 SIDE  1 FROZEN  0 REMOVED
//! control   63..26 version                       25..24 state        23..0 occupied
//! ```

use std::fmt;

/// Slots of a bucket with all its extension lines.
pub(crate) const MAX_SLOTS: u32 = 24;

/// A slot word: a node's address, eight bits of its hash and the policy's bits. Zero: the slot is free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(*mut ());

/// The policy's eight bits of a slot word. The table carries them and never looks at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Policy(u8);

impl Policy {
    pub(crate) const MAX_FREQUENCY: u8 = 3;
    pub(crate) const AGES: u8 = 32;

    pub(crate) fn new(main: bool, frequency: u8, age: u8) -> Policy {
        debug_assert!(frequency <= Self::MAX_FREQUENCY && age < Self::AGES);
        let policy = Policy(age << 3 | u8::from(main) << 2 | frequency);
        // One unit of age less, for the one combination that is taken.
        if policy.is_pending() { Policy(policy.0 - 8) } else { policy }
    }

    pub(crate) const fn from_bits(bits: u8) -> Policy {
        Policy(bits)
    }

    #[inline]
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    #[inline]
    pub(crate) const fn frequency(self) -> u8 {
        self.0 & 3
    }

    #[inline]
    pub(crate) const fn is_main(self) -> bool {
        self.0 & 4 != 0
    }

    #[inline]
    pub(crate) const fn age(self) -> u8 {
        self.0 >> 3
    }

    /// Of a node that is not an entry yet: its key is being loaded. Not sampled for eviction, and not
    /// accounted for; at the cap, so that uses do not change it.
    pub(crate) const PENDING: Policy = Policy(0xFF);

    #[inline]
    pub(crate) fn is_pending(self) -> bool {
        self == Self::PENDING
    }

    #[inline]
    fn can_be_used(self) -> bool {
        self.frequency() < Self::MAX_FREQUENCY && self.0 + 1 != Self::PENDING.0
    }

    /// As good as this one, and another: who has seen this one finds the slot changed.
    pub(crate) fn touched(self) -> Policy {
        if self.frequency() == 0 { Policy(self.0 + 1) } else { Policy(self.0 - 1) }
    }

    /// One more use; unchanged at the cap.
    #[inline]
    pub(crate) fn used(self) -> Policy {
        if self.can_be_used() { Policy(self.0 + 1) } else { self }
    }
}

impl Word {
    /// Set by a remover: the key is gone; the slot is to be cleaned.
    const REMOVED: usize = 1;
    /// Set while the bucket moves to a larger table: forbids every further change of the slot.
    const FROZEN: usize = 2;
    /// With FROZEN: the node goes to the second of the two new buckets.
    const SIDE: usize = 4;
    const FLAGS: usize = 7;
    const ADDRESS: usize = 0x0000_FFFF_FFFF_FFF8;
    const TAG_SHIFT: u32 = 48;
    const TAG: usize = 0xFF << Self::TAG_SHIFT;
    const POLICY_SHIFT: u32 = 56;
    const USED: usize = 1 << Self::POLICY_SHIFT;

    /// The bits of a hash that a slot word repeats, in place for [`Self::has_tag`].
    #[inline]
    pub(crate) fn tag_of(hash: u64) -> usize {
        ((hash >> 16) as usize & 0xFF) << Self::TAG_SHIFT
    }

    #[inline]
    pub(crate) fn new(node: *mut (), tag: usize, policy: Policy) -> Word {
        debug_assert_eq!(node.addr() & !Self::ADDRESS, 0);
        Word(node.map_addr(|addr| addr | tag | usize::from(policy.0) << Self::POLICY_SHIFT))
    }

    /// Whether a node's address leaves the bits free that a slot word uses.
    pub(crate) fn fits(node: *mut ()) -> bool {
        node.addr() & !Self::ADDRESS == 0
    }

    #[inline]
    pub(crate) fn from_raw(raw: *mut ()) -> Word {
        Word(raw)
    }

    /// A slot that nothing was ever put into.
    pub(crate) const UNUSED: Word = Word(std::ptr::null_mut());

    /// A slot that is free again. It differs from [`Self::UNUSED`], so that a helper of a growth that
    /// comes late can tell: it places words in unused slots only.
    pub(crate) const FREE: Word = Word(std::ptr::without_provenance_mut(Self::SIDE));

    #[inline]
    pub(crate) fn raw(self) -> *mut () {
        self.0
    }

    #[inline]
    pub(crate) fn node<N>(self) -> *mut N {
        self.0.map_addr(|addr| addr & Self::ADDRESS).cast()
    }

    #[inline]
    pub(crate) fn has_tag(self, tag: usize) -> bool {
        (self.0.addr() >> Self::TAG_SHIFT) as u8 == (tag >> Self::TAG_SHIFT) as u8
    }

    /// Whether the word is of a node with this tag that was not removed.
    #[inline]
    pub(crate) fn is_candidate(self, tag: usize) -> bool {
        let differs = (self.0.addr() ^ tag) & (Self::TAG | Self::REMOVED) != 0;
        !differs && self.0.addr() & Self::ADDRESS != 0
    }

    #[inline]
    pub(crate) fn tag(self) -> usize {
        self.0.addr() & Self::TAG
    }

    #[inline]
    pub(crate) fn tag_byte(self) -> u8 {
        (self.0.addr() >> Self::TAG_SHIFT) as u8
    }

    #[inline]
    pub(crate) fn policy(self) -> Policy {
        Policy((self.0.addr() >> Self::POLICY_SHIFT) as u8)
    }

    #[inline]
    pub(crate) fn is_pending(self) -> bool {
        self.policy().is_pending()
    }

    #[inline]
    pub(crate) fn with_policy(self, policy: Policy) -> Word {
        let mask = (1 << Self::POLICY_SHIFT) - 1;
        Word(self.0.map_addr(|addr| addr & mask | usize::from(policy.0) << Self::POLICY_SHIFT))
    }

    /// The word with one more use; `None` at the cap, or if the word may not be changed.
    #[inline]
    pub(crate) fn used(self) -> Option<Word> {
        (self.policy().can_be_used() && self.is_plain())
            .then(|| Word(self.0.map_addr(|addr| addr + Self::USED)))
    }

    #[inline]
    pub(crate) fn is_free(self) -> bool {
        self.0.addr() & !Self::SIDE == 0
    }

    #[inline]
    pub(crate) fn is_removed(self) -> bool {
        self.0.addr() & Self::REMOVED != 0
    }

    #[inline]
    pub(crate) fn is_frozen(self) -> bool {
        self.0.addr() & Self::FROZEN != 0
    }

    /// Neither removed nor frozen: may be changed.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        self.0.addr() & Self::FLAGS == 0
    }

    /// Which of the two new buckets a frozen word's node goes to.
    pub(crate) fn side(self) -> usize {
        usize::from(self.0.addr() & Self::SIDE != 0)
    }

    pub(crate) fn removed(self) -> Word {
        Word(self.0.map_addr(|addr| addr | Self::REMOVED))
    }

    pub(crate) fn frozen(self, side: usize) -> Word {
        let side = if side == 0 { 0 } else { Self::SIDE };
        Word(self.0.map_addr(|addr| addr | Self::FROZEN | side))
    }

    /// The word as it stands in the new bucket.
    pub(crate) fn thawed(self) -> Word {
        Word(self.0.map_addr(|addr| addr & !Self::FLAGS))
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("node", &self.node::<()>())
            .field("tag", &self.tag_byte())
            .field("policy", &self.policy())
            .field("removed", &self.is_removed())
            .field("frozen", &self.is_frozen())
            .finish()
    }
}

/// What a bucket's control word says about the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketState {
    /// Nothing has been put here yet; while the table grows, the old bucket holds the keys.
    Uninit,
    /// In use.
    Ready,
    /// Moving to the next table: nothing is committed or cleaned here any more.
    Frozen,
}

/// A value of a control word. Each change raises the version, so an equal value means: no change.
///
/// The version has 38 bits. It cannot come round while anyone could compare an old value: whoever
/// holds one is pinned, every second change retires a node of at least 8 bytes that this pin keeps from
/// being freed, and 2^37 of them do not fit into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control(u64);

impl Control {
    pub(crate) const OCCUPIED: u64 = (1 << MAX_SLOTS) - 1;
    const STATE: u64 = 3 << MAX_SLOTS;
    const READY: u64 = 1 << MAX_SLOTS;
    const FROZEN: u64 = 2 << MAX_SLOTS;
    const VERSION: u64 = 1 << (MAX_SLOTS + 2);

    /// As it stands in zeroed memory.
    pub(crate) const UNINIT: Control = Control(0);

    #[inline]
    pub(crate) fn from_raw(raw: u64) -> Control {
        Control(raw)
    }

    #[inline]
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn state(self) -> BucketState {
        match self.0 & Self::STATE {
            0 => BucketState::Uninit,
            Self::READY => BucketState::Ready,
            _ => BucketState::Frozen,
        }
    }

    #[inline]
    pub(crate) fn is_ready(self) -> bool {
        self.0 & Self::STATE == Self::READY
    }

    #[inline]
    pub(crate) fn occupied(self) -> u32 {
        (self.0 & Self::OCCUPIED) as u32
    }

    #[inline]
    pub(crate) fn is_occupied(self, slot: u32) -> bool {
        self.0 & (1 << slot) != 0
    }

    fn bumped(raw: u64) -> Control {
        Control(raw.wrapping_add(Self::VERSION))
    }

    pub(crate) fn with(self, slot: u32) -> Control {
        Self::bumped(self.0 | 1 << slot)
    }

    pub(crate) fn without(self, slot: u32) -> Control {
        Self::bumped(self.0 & !(1 << slot))
    }

    /// A first READY value with the first `count` slots occupied.
    pub(crate) fn ready(count: u32) -> Control {
        Self::bumped(Self::READY | ((1 << count) - 1))
    }

    pub(crate) fn frozen(self) -> Control {
        Self::bumped(self.0 & !Self::STATE | Self::FROZEN)
    }
}

/// The positions of the set bits, lowest first.
pub(crate) fn bits(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros();
            mask &= mask - 1;
            bit
        })
    })
}
