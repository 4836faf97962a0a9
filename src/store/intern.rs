//! Interning: equal texts are stored once, however many records use them.
//!
//! A hash finds a candidate, then the bytes are compared. The hash must be fast and stable but need
//! not be secret.

use crate::error::StoreError;
use crate::row::to_json;
use crate::schema::{launches, requests, sources, texts};
use diesel::dsl::{delete, exists, not, select};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use slotd_model::JobRequest;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// The minimum number of remembered requests before dropped ones are swept.
const SWEEP_AT_LEAST: usize = 256;

/// The number of recent rows per table that can be found by hash. A text that equals an older row
/// is stored again.
const RECENT: usize = 4096;

/// A cache of the rows of requests and texts.
#[derive(Debug, Default)]
pub(super) struct Interned {
    /// The rows of requests that are in memory. Equal pointers mean the same request: while the
    /// `Weak` exists, the address is not reused and `Arc::make_mut` cannot change the request in
    /// place.
    held: HashMap<usize, (Weak<JobRequest>, i64)>,
    sweep_at: usize,
    requests: Recent,
    texts: Recent,
}

/// The newest rows of a table by the hash of their body. A row may have been deleted since.
#[derive(Debug, Default)]
struct Recent {
    rows: HashMap<i64, i64>,
    /// The hashes, oldest first.
    order: VecDeque<i64>,
    /// The newest rows of the database have been read.
    is_read: bool,
}

impl Recent {
    /// Returns the row whose body has this hash, if it is a recent one. `newest` reads hashes and
    /// rows, newest first.
    fn find(
        &mut self,
        hash: i64,
        newest: impl FnOnce() -> QueryResult<Vec<(i64, i64)>>,
    ) -> Result<Option<i64>, StoreError> {
        if !self.is_read {
            let rows = newest().map_err(StoreError::sql("read the newest texts"))?;
            rows.into_iter().rev().for_each(|(hash, row)| self.put(hash, row));
            self.is_read = true;
        }
        Ok(self.rows.get(&hash).copied())
    }

    fn put(&mut self, hash: i64, row: i64) {
        if self.rows.insert(hash, row).is_none() {
            self.order.push_back(hash);
        }
        if self.order.len() > RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.rows.remove(&oldest);
        }
    }
}

impl Interned {
    /// Forgets everything, since after a rollback the rows may not exist.
    pub(crate) fn clear(&mut self) {
        *self = Interned::default();
    }

    /// Records the row of a request.
    pub(crate) fn remember(&mut self, request: &Arc<JobRequest>, request_id: i64) {
        if self.held.len() >= self.sweep_at.max(SWEEP_AT_LEAST) {
            self.held.retain(|_, (request, _)| request.strong_count() > 0);
            self.sweep_at = self.held.len() * 2;
        }
        self.held.insert(key(request), (Arc::downgrade(request), request_id));
    }

    /// Records the rows of requests that are in use.
    pub(crate) fn remember_all(&mut self, requests: &[(i64, Arc<JobRequest>)]) {
        self.held.reserve(requests.len());
        self.sweep_at = self.sweep_at.max(2 * (self.held.len() + requests.len()));
        requests.iter().for_each(|(row, request)| self.remember(request, *row));
    }

    /// Returns the row of a request, inserting it if no recent row is equal.
    pub(crate) fn request_row(
        &mut self,
        conn: &mut SqliteConnection,
        request: &Arc<JobRequest>,
    ) -> Result<i64, StoreError> {
        if let Some((_, id)) = self.held.get(&key(request)) {
            return Ok(*id);
        }
        let body = to_json("requests", "body", &**request)?;
        let hash = hash(body.as_bytes());
        let newest = || {
            requests::table
                .select((requests::hash, requests::request_id))
                .order(requests::request_id.desc())
        };
        let likely = self.requests.find(hash, || newest().limit(RECENT as i64).load(conn))?;
        let id = match likely {
            Some(id) if is_request(conn, id, &body)? => id,
            _ => insert_request(conn, request, hash, &body)?,
        };
        self.requests.put(hash, id);
        self.remember(request, id);
        Ok(id)
    }

    /// Returns the row of a script or an environment, inserting it if no recent row is equal.
    pub(crate) fn text_row(
        &mut self,
        conn: &mut SqliteConnection,
        body: &[u8],
    ) -> Result<i64, StoreError> {
        let hash = hash(body);
        let newest =
            || texts::table.select((texts::hash, texts::text_id)).order(texts::text_id.desc());
        let likely = self.texts.find(hash, || newest().limit(RECENT as i64).load(conn))?;
        let id = match likely {
            Some(id) if is_text(conn, id, body)? => id,
            _ => diesel::insert_into(texts::table)
                .values((texts::hash.eq(hash), texts::body.eq(body)))
                .returning(texts::text_id)
                .get_result(conn)
                .map_err(StoreError::sql("store a text"))?,
        };
        self.texts.put(hash, id);
        Ok(id)
    }
}

fn key(request: &Arc<JobRequest>) -> usize {
    Arc::as_ptr(request).addr()
}

#[derive(Insertable)]
#[diesel(table_name = requests, treat_none_as_default_value = false)]
struct NewRequestRow<'a> {
    hash: i64,
    name: &'a str,
    user: &'a str,
    account: Option<&'a str>,
    snapshot: Option<&'a str>,
    body: &'a str,
}

fn is_request(conn: &mut SqliteConnection, id: i64, body: &str) -> Result<bool, StoreError> {
    select(exists(requests::table.find(id).filter(requests::body.eq(body))))
        .get_result(conn)
        .map_err(StoreError::sql("find the request"))
}

fn is_text(conn: &mut SqliteConnection, id: i64, body: &[u8]) -> Result<bool, StoreError> {
    select(exists(texts::table.find(id).filter(texts::body.eq(body))))
        .get_result(conn)
        .map_err(StoreError::sql("find a text"))
}

fn insert_request(
    conn: &mut SqliteConnection,
    request: &JobRequest,
    hash: i64,
    body: &str,
) -> Result<i64, StoreError> {
    diesel::insert_into(requests::table)
        .values(NewRequestRow {
            hash,
            name: &request.name,
            user: &request.user,
            account: request.account.as_deref(),
            snapshot: request.snapshot.as_ref().map(|snapshot| snapshot.name.as_str()),
            body,
        })
        .returning(requests::request_id)
        .get_result(conn)
        .map_err(StoreError::sql("store the request"))
}

/// FNV-1a, 64 bits. The hashes are stored, and those of the standard library may change with the
/// compiler.
pub(super) fn hash(bytes: &[u8]) -> i64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed()
}

/// Deletes those of the given texts that no record uses.
pub(super) fn remove_unused_texts(
    conn: &mut SqliteConnection,
    ids: impl Iterator<Item = i64>,
) -> Result<(), StoreError> {
    let ids: BTreeSet<i64> = ids.collect();
    let as_script = exists(launches::table.filter(launches::script_id.eq(texts::text_id)));
    let as_env = exists(launches::table.filter(launches::env_id.eq(texts::text_id.nullable())));
    let as_summary = exists(sources::table.filter(sources::summary_id.eq(texts::text_id)));
    let of_launches = not(as_script).and(not(as_env));
    delete(
        texts::table.filter(texts::text_id.eq_any(ids)).filter(of_launches).filter(not(as_summary)),
    )
    .execute(conn)
    .map_err(StoreError::sql("delete the scripts and environments of old jobs"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn the_hash_matches_published_test_vectors() {
        assert_eq!(hash(b"").cast_unsigned(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"foobar").cast_unsigned(), 0x8594_4171_f739_67e8);
    }
}
