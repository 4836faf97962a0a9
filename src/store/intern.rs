//! Texts that are stored once, however many records use them.
//!
//! A hash finds a candidate and the bytes decide, so the hash needs to be quick and stable, not secret.

use crate::model::JobRequest;
use crate::store::error::StoreError;
use crate::store::row::to_json;
use crate::store::schema::{requests, texts};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The smallest number of remembered requests at which those that are gone are looked for.
const SWEEP_AT_LEAST: usize = 256;

/// Which row holds a request that is in memory. Equal pointers mean the same request: while a `Weak` is kept,
/// neither can its place be given to another request, nor can `Arc::make_mut` change it where it is.
#[derive(Debug, Default)]
pub(super) struct RequestCache {
    known: HashMap<usize, (Weak<JobRequest>, i64)>,
    sweep_at: usize,
}

impl RequestCache {
    /// Forgets everything: after a rollback the rows may not exist.
    pub fn clear(&mut self) {
        self.known.clear();
    }

    /// Tells that this request is the one in that row.
    pub fn remember(&mut self, request: &Arc<JobRequest>, request_id: i64) {
        if self.known.len() >= self.sweep_at.max(SWEEP_AT_LEAST) {
            self.known.retain(|_, (request, _)| request.strong_count() > 0);
            self.sweep_at = self.known.len() * 2;
        }
        self.known.insert(key(request), (Arc::downgrade(request), request_id));
    }

    /// The row of the request; written now if there is no equal one.
    pub fn row_of(&mut self, conn: &mut SqliteConnection, request: &Arc<JobRequest>) -> Result<i64, StoreError> {
        if let Some((_, id)) = self.known.get(&key(request)) {
            return Ok(*id);
        }
        let id = request_row(conn, request)?;
        self.remember(request, id);
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
    body: &'a str,
}

fn request_row(conn: &mut SqliteConnection, request: &JobRequest) -> Result<i64, StoreError> {
    let body = to_json("requests", "body", request)?;
    let hash = hash(body.as_bytes());
    let equal = requests::table
        .filter(requests::hash.eq(hash).and(requests::body.eq(&body)))
        .select(requests::request_id)
        .first(conn)
        .optional()
        .map_err(StoreError::sql("look for the request"))?;
    match equal {
        Some(id) => Ok(id),
        None => diesel::insert_into(requests::table)
            .values(NewRequestRow {
                hash,
                name: &request.name,
                user: &request.user,
                account: request.account.as_deref(),
                body: &body,
            })
            .returning(requests::request_id)
            .get_result(conn)
            .map_err(StoreError::sql("store the request")),
    }
}

/// The row of a script or an environment; written now if there is no equal one.
pub(super) fn text_row(conn: &mut SqliteConnection, body: &[u8]) -> Result<i64, StoreError> {
    let hash = hash(body);
    let equal = texts::table
        .filter(texts::hash.eq(hash).and(texts::body.eq(body)))
        .select(texts::text_id)
        .first(conn)
        .optional()
        .map_err(StoreError::sql("look for a text"))?;
    match equal {
        Some(id) => Ok(id),
        None => diesel::insert_into(texts::table)
            .values((texts::hash.eq(hash), texts::body.eq(body)))
            .returning(texts::text_id)
            .get_result(conn)
            .map_err(StoreError::sql("store a text")),
    }
}

/// FNV-1a, 64 bits. The standard library's hashes may change with the compiler; a stored one may not.
fn hash(bytes: &[u8]) -> i64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(hash(b"").cast_unsigned(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"foobar").cast_unsigned(), 0x8594_4171_f739_67e8);
    }
}
