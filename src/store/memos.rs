//! Stores the state of notifications across restarts.

use crate::row::{from_json, to_json};
use crate::schema::memos;
use crate::{Store, StoreError};
use diesel::prelude::*;
use slotd_model::memo::{MemoBody, MemoKey};

pub(super) fn put(
    conn: &mut SqliteConnection,
    key: MemoKey,
    body: &MemoBody,
) -> Result<(), StoreError> {
    let (topic, number) = key.parts();
    let body = to_json("memos", "body", body)?;
    diesel::replace_into(memos::table)
        .values((memos::topic.eq(topic), memos::number.eq(i64::from(number)), memos::body.eq(body)))
        .execute(conn)
        .map_err(StoreError::sql("store the state of a notification"))?;
    Ok(())
}

/// Deletes a memo. A missing one has been deleted already.
pub(super) fn remove(conn: &mut SqliteConnection, key: MemoKey) -> Result<(), StoreError> {
    let (topic, number) = key.parts();
    diesel::delete(memos::table.find((topic, i64::from(number))))
        .execute(conn)
        .map_err(StoreError::sql("delete the state of a notification"))?;
    Ok(())
}

impl Store {
    /// Returns all memos. Logs and skips unreadable ones.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub fn memos(&mut self) -> Result<Vec<(MemoKey, MemoBody)>, StoreError> {
        let rows: Vec<(String, i64, String)> = memos::table
            .load(&mut self.conn)
            .map_err(StoreError::sql("read the state of notifications"))?;
        let memos = rows.into_iter().filter_map(|(topic, number, body)| {
            let key =
                u32::try_from(number).ok().and_then(|number| MemoKey::of_parts(&topic, number));
            let body = from_json("memos", "body", &body);
            match (key, body) {
                (Some(key), Ok(body)) => Some((key, body)),
                (None, _) => {
                    log::error!("ignoring the notification state {topic} {number}: unknown topic");
                    None
                }
                (_, Err(e)) => {
                    log::error!("ignoring the unreadable notification state {topic} {number}: {e}");
                    None
                }
            }
        });
        Ok(memos.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Place, put as commit};
    use slotd_model::change::Change;
    use slotd_model::memo::Tally;
    use slotd_model::{JobId, Timestamp};

    #[test]
    fn memos_are_stored_by_key() {
        let place = Place::new();
        let tally = |at| MemoBody::Tally(Box::new(Tally::since(Timestamp(at))));
        let put = |key, body| Change::PutMemo { key, body };
        let (queue, link) = (MemoKey::Queue, MemoKey::Link(JobId(7)));
        commit(&mut place.store(), vec![put(queue, tally(1)), put(link, MemoBody::Link(JobId(3)))]);
        commit(
            &mut place.store(),
            vec![put(queue, tally(2)), put(MemoKey::Link(JobId(8)), MemoBody::Link(JobId(3)))],
        );
        let gone = Change::DropMemo { key: MemoKey::Link(JobId(8)) };
        commit(&mut place.store(), vec![gone.clone(), gone]);
        let mut store = place.store();
        let unreadable = (memos::topic.eq("array"), memos::number.eq(9), memos::body.eq("{"));
        diesel::insert_into(memos::table).values(unreadable).execute(&mut store.conn).unwrap();
        let mut kept = store.memos().unwrap();
        kept.sort_by_key(|(key, _)| *key);
        assert_eq!(kept, [(link, MemoBody::Link(JobId(3))), (queue, tally(2))]);
    }
}
